"""The parts of extract_rules, and the words and patterns of its 16 languages."""
