"""Read without a model, in 16 languages, what a message says about its writer, corrects, or asks to forget."""
