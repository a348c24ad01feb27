"""One module for each library, with `opened(aim)` that gives a Client. Imported by name, in the environment where the library is."""
