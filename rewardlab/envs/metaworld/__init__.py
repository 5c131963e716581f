"""The 50 manipulation tasks of Meta-World as environments: `metaworld/<task>`."""
