"""Record batches and messages as bytes, made by hand."""
