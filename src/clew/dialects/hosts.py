"""Which provider answers at which host. A hint only: endpoints are recognised by their path.

Names are those of the GenAI conventions where they have one
(https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/), else the provider's own.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Host(NamedTuple):
    """What a host tells."""

    provider: str | None
    models_only: bool = True
    """True when the host serves a model API and nothing else, so an unknown path is one too."""


NOBODY: Final = Host(None, models_only=False)

_EXACT: Final = """
api.openai.com                      openai
eu.api.openai.com                   openai
us.api.openai.com                   openai
api.anthropic.com                   anthropic
generativelanguage.googleapis.com   gcp.gemini
aiplatform.googleapis.com           gcp.vertex_ai       shared
api.mistral.ai                      mistral_ai
codestral.mistral.ai                mistral_ai
api.groq.com                        groq
api.deepseek.com                    deepseek
api.x.ai                            x_ai
us-east-1.api.x.ai                  x_ai
eu-west-1.api.x.ai                  x_ai
api.perplexity.ai                   perplexity
api.cohere.com                      cohere
api.cohere.ai                       cohere
openrouter.ai                       openrouter          shared
api.together.xyz                    together
api.together.ai                     together
api.fireworks.ai                    fireworks
api.cerebras.ai                     cerebras
api.moonshot.ai                     moonshot_ai
api.moonshot.cn                     moonshot_ai
api.z.ai                            zai
open.bigmodel.cn                    zai
api.writer.com                      writer
api.voyageai.com                    voyageai
api.replicate.com                   replicate
api.aleph-alpha.com                 aleph_alpha
api.portkey.ai                      portkey
router.huggingface.co               huggingface
api-inference.huggingface.co        huggingface
api.ai21.com                        ai21
api.sambanova.ai                    sambanova
api.deepinfra.com                   deepinfra
api.hyperbolic.xyz                  hyperbolic
api.novita.ai                       novita
api.minimax.io                      minimax
api.minimax.chat                    minimax
dashscope.aliyuncs.com              dashscope
dashscope-intl.aliyuncs.com         dashscope
api.inference.crusoecloud.com       crusoe
integrate.api.nvidia.com            nvidia
models.github.ai                    github
ai-gateway.vercel.sh                vercel
api.jina.ai                         jina
ollama.com                          ollama              shared
localhost:11434                     ollama
127.0.0.1:11434                     ollama
[::1]:11434                         ollama
0.0.0.0:11434                       ollama
host.docker.internal:11434          ollama
"""

_PATTERNS: Final = r"""
.+\.openai\.azure\.(com|us|cn)                      azure.ai.openai
.+\.cognitiveservices\.azure\.com                   azure.ai.openai     shared
.+\.services\.ai\.azure\.com                        azure.ai.inference
.+\.models\.ai\.azure\.com                          azure.ai.inference
.+\.inference\.ml\.azure\.com                       azure.ai.inference
bedrock-runtime(-fips)?\..+\.amazonaws\.com(\.cn)?  aws.bedrock
.+\.bedrock-runtime\..+\.vpce\.amazonaws\.com       aws.bedrock
bedrock-(runtime|mantle)\..+\.api\.aws              aws.bedrock
runtime(-fips)?\.sagemaker\..+\.amazonaws\.com(\.cn)?   aws.sagemaker
.+-aiplatform\.googleapis\.com                      gcp.vertex_ai       shared
aiplatform\..+\.rep\.googleapis\.com                gcp.vertex_ai       shared
.+\.ml\.cloud\.ibm\.com                             ibm.watsonx.ai      shared
.+\.inference\.heroku\.com                          heroku
inference\.heroku\.com                              heroku
.+\.snowflakecomputing\.com                         snowflake           shared
.+\.endpoints\.huggingface\.cloud                   huggingface
.+\.databricks\.com                                 databricks          shared
.+\.azuredatabricks\.net                            databricks          shared
.+\.crusoecloud\.com                                crusoe              shared
"""


def _row(line: str) -> tuple[str, Host]:
    name, provider, *rest = line.split()
    return name, Host(provider, models_only=not rest)


HOSTS: Final[dict[str, Host]] = dict(_row(line) for line in _EXACT.strip().splitlines())
"""Hosts by name, `name:port` where the port matters."""

HOST_PATTERNS: Final[tuple[tuple[re.Pattern[str], Host], ...]] = tuple(
    (re.compile(pattern), host)
    for pattern, host in (_row(line) for line in _PATTERNS.strip().splitlines())
)
"""Hosts that carry a region, an account or a resource in their name."""

_FAMILIES: Final = re.compile(
    r"azure|amazonaws|\.api\.aws|googleapis|\.ibm\.com|heroku|snowflake|huggingface|databricks|crusoe"
)


def host_of(host: str) -> Host:
    """Return what `host` (with or without a port) tells; `NOBODY` when it is not known."""
    known = HOSTS.get(host)
    if known is not None:
        return known
    name = host.lower()
    if not name.endswith("]"):
        name, colon, port = name.rpartition(":")
        name = name if colon and port.isdigit() else host.lower()
    known = HOSTS.get(host.lower()) or HOSTS.get(name)
    if known is not None or _FAMILIES.search(name) is None:
        return known or NOBODY
    for pattern, entry in HOST_PATTERNS:
        if pattern.fullmatch(name):
            return entry
    return NOBODY
