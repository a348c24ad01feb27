"""Threads: every method is atomic, so nothing is lost and no reader sees half an edit."""

import threading
from collections.abc import Callable

from hermes import MessageGraph


def run(*jobs: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_concurrent_appends_lose_nothing() -> None:
    chat = MessageGraph()

    def appender(name: int) -> Callable[[], None]:
        return lambda: [chat.append({"role": "assistant", "content": f"{name} {index}"}) for index in range(500)] and None

    run(*(appender(name) for name in range(4)))
    assert len(chat) == 2000
    responses = list(chat.responses())
    assert [response.index for response in responses] == list(range(2000))
    for name in range(4):
        own = [message["content"] for message in chat if message["content"].startswith(f"{name} ")]
        assert own == [f"{name} {index}" for index in range(500)]


def test_readers_never_see_half_an_edit() -> None:
    """A writer keeps two neighbouring messages equal, in one edit each time; no reader finds them different."""
    chat = MessageGraph([{"role": "user", "content": "0"}] * 2)
    done = threading.Event()

    def write() -> None:
        for number in range(400):
            chat[0:2] = [{"role": "user", "content": str(number)}] * 2
            chat.append({"role": "assistant", "content": "x"})
        done.set()

    def read() -> None:
        while not done.is_set():
            for one, other, *_ in (chat.prepare().messages, chat.versions[-1], chat.context(), chat[0:2]):
                assert one["content"] == other["content"]
            assert MessageGraph.from_json(chat.to_json()).verify()

    run(write, read, read)
    assert (len(chat.versions), chat.verify().status) == (400, "ok")


def test_concurrent_commits_on_one_turn_are_all_kept() -> None:
    chat = MessageGraph([{"role": "user", "content": "a"}])
    turn = chat.prepare()

    def committer(name: int) -> Callable[[], None]:
        return lambda: [chat.commit(turn, {"role": "assistant", "content": f"{name} {index}"}) for index in range(50)] and None

    run(*(committer(name) for name in range(4)))
    assert (len(chat), len(list(chat.responses())), len(chat.versions)) == (2, 200, 200)
    assert {tuple(message["content"] for message in response.context) for response in chat.responses()} == {("a",)}
