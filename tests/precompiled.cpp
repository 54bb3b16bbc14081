// Nothing of its own: the target that it makes carries the tests' precompiled header.
