"""Accuracy over pairs and groups: pure functions, then torchmetrics modules over them."""
