"""A run as a plain Hugging Face folder with a model card."""
