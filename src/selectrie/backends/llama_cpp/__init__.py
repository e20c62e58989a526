"""The back end that loads GGUF models through llama.cpp.

A model gets a new context, either on the weights of a file or on those of a
`llama_cpp.Llama`.
"""
