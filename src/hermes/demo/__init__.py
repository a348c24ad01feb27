"""What Hermes shows of itself: a guided tour of the message graph, and platforms to try it with that need no account.

tour         the message graph in the terminal, scene by scene
platforms    Telegram, WhatsApp and Instagram as strict stand-ins on this machine; needs the extra `serve`, and is imported by its own name
"""

from hermes.demo.tour import SCENES, TourScene, play_tour

__all__ = ["SCENES", "TourScene", "play_tour"]
