"""What benchmarks/scale.py stands on."""
