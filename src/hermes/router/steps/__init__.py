"""The ten steps, a file each, named as the step. `router/pipeline.py` lists them in the order in which a message takes them."""
