"""Pictures as real programs write them: 12 by 7 pixels, of every kind that is taken."""

from base64 import b64decode

WIDTH, HEIGHT = 12, 7

_WRITTEN = {
    "progressive jpeg": (
        "image/jpeg",
        """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////
        2wBDAf//////////////////////////////////////////////////////////////////////////////////////wgARCAAHAAwDASIAAhEBAxEB/8QA
        FQABAQAAAAAAAAAAAAAAAAAAAAH/xAAUAQEAAAAAAAAAAAAAAAAAAAAB/9oADAMBAAIQAxAAAAGAf//EABQQAQAAAAAAAAAAAAAAAAAAABD/2gAIAQEAAQUC
        P//EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQMBAT8Bf//EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQIBAT8Bf//EABQQAQAAAAAAAAAAAAAAAAAAABD/
        2gAIAQEABj8CP//EABQQAQAAAAAAAAAAAAAAAAAAABD/2gAIAQEAAT8hP//aAAwDAQACAAMAAAAQ/wD/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oACAEDAQE/
        EH//xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oACAECAQE/EH//xAAUEAEAAAAAAAAAAAAAAAAAAAAQ/9oACAEBAAE/ED//2Q==
        """,
    ),
    "grey jpeg": (
        "image/jpeg",
        """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////
        wAALCAAHAAwBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEI
        I0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ip
        qrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/9oACAEBAAA/AEor/9k=
        """,
    ),
    "png": (
        "image/png",
        """
        iVBORw0KGgoAAAANSUhEUgAAAAwAAAAHCAIAAACz0DtzAAAAFUlEQVR4nGM8IafBQAgwEVQxlBUBABfVARwS4MzOAAAAAElFTkSuQmCC
        """,
    ),
    "gif": (
        "image/gif",
        """
        R0lGODdhDAAHAIEAAMgeKAAAAAAAAAAAACwAAAAADAAHAAAIEQABCBxIsKDBgwgTKlzI0GBAADs=
        """,
    ),
    "animated gif": (
        "image/gif",
        """
        R0lGODdhDAAHAIEAAMgeKAAAAAAAAAAAACwAAAAADAAHAAAIEQABCBxIsKDBgwgTKlzI0GBAACH5BAEAAAEALAAAAAAMAAcAgRSCKAAAAAAAAAAAAAgRAAEI
        HEiwoMGDCBMqXMjQYEAAOw==
        """,
    ),
    "lossy webp": (
        "image/webp",
        """
        UklGRi4AAABXRUJQVlA4ICIAAABwAQCdASoMAAcADMDOJaACdAFAAAD+2iYLtH4u7EcZJAAA
        """,
    ),
    "lossless webp": (
        "image/webp",
        """
        UklGRh4AAABXRUJQVlA4TBEAAAAvC4ABAAdQjyIXpf+BiOh/AAA=
        """,
    ),
    "webp with alpha": (
        "image/webp",
        """
        UklGRkgAAABXRUJQVlA4WAoAAAAQAAAACwAABgAAQUxQSAoAAAABB1CyiAhERP8DVlA4IBgAAAAwAQCdASoMAAcADMDOJaQAA3AA/uwdgAA=
        """,
    ),
    "animated webp": (
        "image/webp",
        """
        UklGRr4AAABXRUJQVlA4WAoAAAACAAAACwAABgAAQU5JTQYAAAAAAAAAAABBTk1GRgAAAAAAAAAAAAsAAAYAAAAAAAJWUDggLgAAADABAJ0BKgwABwABQCYl
        oAADcAD+8U2v/62/HP5rqb//94z//7jP//uM/+RAAABBTk1GRAAAAAAAAAAAAAsAAAYAAAAAAABWUDggLAAAADQBAJ0BKgwABwAAACYloAADcAD+8JtD//sX
        1t/ZGLf//z8z/49//Z/WAAAA
        """,
    ),
}
PICTURES = {name: (kind, b64decode("".join(text.split()))) for name, (kind, text) in _WRITTEN.items()}
"""By name: what it is, and its bytes."""

PNG, JPEG = PICTURES["png"][1], PICTURES["progressive jpeg"][1]
