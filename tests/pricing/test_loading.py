"""Loading of the price library: in the background, offline, in children and threads."""

from __future__ import annotations

import os
import threading

import pytest
from fresh import run

from clew.pricing import PENDING, Prices


def test_nothing_is_loaded_before_it_is_wanted():
    """Importing the module loads no price table; the first question starts the loading thread."""
    script = (
        "import sys, threading\n"
        "from clew.pricing import Prices, PENDING\n"
        "assert 'genai_prices' not in sys.modules and 'pydantic' not in sys.modules\n"
        "book = Prices()\n"
        "assert book.find('openai', 'gpt-4o') is PENDING\n"
        "assert [(t.name, t.daemon) for t in threading.enumerate()][1:] == [('clew-prices', True)]\n"
        "assert book.wait(60)\n"
        "print(book.find('openai', 'gpt-4o').model)"
    )
    assert run(script) == "gpt-4o"


def test_the_network_is_never_used():
    """Loading and looking up open no socket and start no updater."""
    script = (
        "import socket, sys, threading\n"
        "def refuse(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.bind'):\n"
        "        print(event)\n"
        "sys.addaudithook(refuse)\n"
        "from clew.pricing import Prices\n"
        "book = Prices()\n"
        "assert book.wait(60)\n"
        "assert book.find('openai', 'gpt-4o') and not book.find('openai', 'nothing')\n"
        "threading.enumerate()[-1].join(5) if threading.active_count() > 1 else None\n"
        "print(threading.active_count())"
    )
    assert run(script) == "1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_has_prices():
    """A child forked while the parent loads, or after, answers like the parent."""
    script = (
        "import os, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from clew.pricing import Prices\n"
        "early, late = Prices(), Prices()\n"
        "early.load_in_background()\n"
        "for book in (early, late):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        fine = book.wait(30) and book.find('openai', 'gpt-4o').model == 'gpt-4o'\n"
        "        os._exit(0 if fine else 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "print('both')"
    )
    assert run(script) == "both"


def test_many_threads_get_the_same_answer():
    """Look-ups from several threads at once, during the load too, end in one and the same price."""
    book = Prices()
    answers = []

    def ask():
        book.wait(60)
        answers.append(book.find("openai", "gpt-4o"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(answers) == {book.find("openai", "gpt-4o")}
    assert PENDING not in answers
