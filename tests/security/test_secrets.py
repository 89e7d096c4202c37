"""Secrets that nobody can guess, and how long somebody who lost a right still has it."""

import base64
import hashlib
import json

import pytest

from tasks_app.access import tokens
from tasks_app.live import consumer
from tasks_app.models import Scope, Token

pytestmark = [pytest.mark.once, pytest.mark.django_db]


def test_a_token_is_256_random_bits():
    secrets = {tokens.create("mailer", Scope.READ)[1] for _ in range(20)}
    assert len(secrets) == 20
    assert {len(base64.urlsafe_b64decode(secret.removeprefix("ts_") + "=")) for secret in secrets} == {32}


def test_only_its_hash_is_kept():
    token, secret = tokens.create("mailer", Scope.READ)
    [row] = Token.objects.filter(pk=token.pk).values()
    assert row["hash"] == hashlib.sha256(secret.encode()).hexdigest()
    assert secret.removeprefix("ts_") not in json.dumps(row, default=str)


def test_who_lost_a_right_has_it_for_seconds_only():
    assert tokens.TRUSTED_S <= 5
    assert consumer.RIGHTS_AGAIN_S <= 30
