"""Ways to try Hermes: a guided tour of the message graph, and fake platforms that need no account.

tour         the message graph in the terminal, scene by scene
platforms    strict fakes of Telegram, WhatsApp and Instagram on this machine; needs the extra `serve`: import it as hermes.demo.platforms
"""

from hermes.demo.tour import SCENES, TourScene, play_tour

__all__ = ["SCENES", "TourScene", "play_tour"]
