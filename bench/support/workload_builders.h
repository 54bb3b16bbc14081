// One builder per workload. They live in few files because each of those pays for the whole of torch::nn.
#pragma once

#include "bench/support/workloads.h"

namespace tandem::bench {

Workload mlp_tiny();
Workload mlp_mnist();
Workload resnet_cifar();
Workload pinn();

Workload gpt_char();
Workload gpt_wide();
Workload lstm_cell();

}  // namespace tandem::bench
