"""Trees of arrays and settings in, files out, and back: safetensors, written so that no file is ever half there."""
