"""What a release is made of: wheel, image with its list of contents, archive for Spark. `release` makes all."""
