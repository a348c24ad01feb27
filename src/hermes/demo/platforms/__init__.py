"""Fake platforms on this machine: strict fakes of Telegram, WhatsApp and Instagram that speak the real wire protocols and need no account.

    async with open_platforms(speed=1000) as p:
        p.telegram.connect("http://127.0.0.1:8080/webhooks/telegram/bali", secret="s3cret")
        ada = p.telegram.person("Ada")
        ada.say("find me a sunset bar")                # on its way to the webhook
        [answer] = await ada.wait_for_messages(1)      # what really arrived on her phone
        p.telegram.fail(429, retry_after=3)            # the next call; or .html() .hang() .reset() .slow(5) .raw("") .outage(600)
        p.telegram.reset(to=ada)                       # she gets the message; the sender sees a broken connection
        p.whatsapp.disorder = Disorder(duplicates=0.1, held_back=0.2, batch_s=2)
        p.skip(25 * 3600)                              # the window is closed now

server           all platforms at one server
platform         what the platforms have in common: check a call, apply a fault, act, answer
person           a person with a phone
message_log      what each person really received, and what they sent
faults           the faults that a test or an operator schedules
webhook_post     posts one webhook once; how disordered webhooks arrive
platform_clock   the platforms' time, at any speed
seeded_random    random draws that are the same for the same seed
rate_limits      how many calls a platform accepts
change_signal    wakes the tasks that wait for a change
refusal          the error for a call that a platform refuses
telegram/        the Bot API
meta/            what WhatsApp and Instagram have in common
whatsapp/        360dialog and the Cloud API
instagram/       Instagram login and Page login
meta_graph_host  the host that Meta's products share
control          everything over HTTP, below /_control
state_json       the state that /_control returns
page/            everything on a web page, at /

Nothing here uses Hermes' own channels: a fake that shared their code would repeat their mistakes, and prove nothing."""

from hermes.demo.platforms.faults import FailLaterFault, Fault, HangFault, HtmlFault, RawFault, RefuseFault, ResetFault, SlowFault
from hermes.demo.platforms.instagram import FakeInstagram, InstagramPerson
from hermes.demo.platforms.message_log import PersonMessage, ReceivedMessage
from hermes.demo.platforms.meta import VerificationFailed
from hermes.demo.platforms.person import FakePerson, sample_picture
from hermes.demo.platforms.platform import FakePlatform, RecordedRequest
from hermes.demo.platforms.server import FakePlatforms, open_platforms, webhook_url
from hermes.demo.platforms.telegram import FakeTelegram, TelegramGroup, TelegramPerson
from hermes.demo.platforms.webhook_post import Disorder, WebhookAttempt
from hermes.demo.platforms.whatsapp import FakeWhatsApp, RefusalTiming, WhatsAppApi, WhatsAppGroup, WhatsAppPerson

__all__ = [
    "Disorder",
    "FailLaterFault",
    "FakeInstagram",
    "FakePerson",
    "FakePlatform",
    "FakePlatforms",
    "FakeTelegram",
    "FakeWhatsApp",
    "Fault",
    "HangFault",
    "HtmlFault",
    "InstagramPerson",
    "PersonMessage",
    "RawFault",
    "ReceivedMessage",
    "RecordedRequest",
    "RefusalTiming",
    "RefuseFault",
    "ResetFault",
    "SlowFault",
    "TelegramGroup",
    "TelegramPerson",
    "VerificationFailed",
    "WebhookAttempt",
    "WhatsAppApi",
    "WhatsAppGroup",
    "WhatsAppPerson",
    "open_platforms",
    "sample_picture",
    "webhook_url",
]
