"""What a user's message tells of its writer, corrects and asks to forget, read without a model in 16 languages."""
