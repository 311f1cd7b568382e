# What Penstock uses of botocore, which ships no types.
