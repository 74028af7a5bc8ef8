"""Reward models: a Hugging Face backbone, pooling by attention mask, a float32 head; loading, saving, scoring."""
