"""Custom derivatives: `custom_op`, `Function`, and functions that alter gradients."""
