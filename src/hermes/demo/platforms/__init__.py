"""Telegram, WhatsApp and Instagram on this machine: strict stand-ins that speak the real wire protocols, and need no account.

    async with open_platforms(speed=1000) as p:
        p.telegram.connect("http://127.0.0.1:8080/webhooks/telegram/bali", secret="s3cret")
        ada = p.telegram.person("Ada")
        ada.say("find me a sunset bar")                # on its way to the webhook
        [answer] = await ada.gets(1)                   # what really arrived on her phone
        p.telegram.fail(429, retry_after=3)            # the next call; or .html() .hang() .reset() .slow(5) .raw("") .outage(600)
        p.telegram.reset(to=ada)                       # she gets the message, who sent it sees a broken connection
        p.whatsapp.disorder = Disorder(duplicates=0.1, held_back=0.2, batch_s=2)
        p.skip(25 * 3600)                              # the window is closed now

opened       all of them at one server
platform     what they have in common: a call is checked, struck by a fault, done, answered
person       somebody with a phone
ledger       what each person really received
faults       what goes wrong on cue
post         a webhook, posted once; how untidy they come
pace         time, as fast as wanted
chance       luck that comes out the same each time
limits       how much a platform takes in a while
telegram/    the Bot API
meta/        what WhatsApp and Instagram have in common
whatsapp/    360dialog and the Cloud API
instagram/   Instagram login and Page login
graph        the host that Meta's products share
control      all of it over HTTP, below /_control
page/        all of it for a person, at /

Nothing here knows Hermes' own channels: a stand-in that shared their code would make their mistakes, and prove nothing."""

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
