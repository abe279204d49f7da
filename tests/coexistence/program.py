"""One model call beside another instrumentation; run in an environment that has it.

Arguments: the SDK, the instrumentation, which is installed first (`clew` or `other`), whether the
answer is streamed. Prints what was exported as JSON.
"""

import importlib
import json
import sys

import clew
from clew.facts import Usage
from clew.testing import CaptureExporter, Reply, ScriptedProvider
from clew.testing.mistral_format import MistralChatCompletions

SDK, OTHER, FIRST, STREAM = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "stream"
INSTRUMENTORS = {
    "official": {
        "openai": "opentelemetry.instrumentation.genai.openai:OpenAIInstrumentor",
        "anthropic": "opentelemetry.instrumentation.genai.anthropic:AnthropicInstrumentor",
        "google-genai": "opentelemetry.instrumentation.google_genai:GoogleGenAiSdkInstrumentor",
    },
    "openllmetry": {
        "openai": "opentelemetry.instrumentation.openai:OpenAIInstrumentor",
        "anthropic": "opentelemetry.instrumentation.anthropic:AnthropicInstrumentor",
    },
    "openinference": {
        "openai": "openinference.instrumentation.openai:OpenAIInstrumentor",
        "anthropic": "openinference.instrumentation.anthropic:AnthropicInstrumentor",
        "google-genai": "openinference.instrumentation.google_genai:GoogleGenAIInstrumentor",
    },
}
LAYERS = (
    "openinference.instrumentation.langchain:LangChainInstrumentor",
    "openinference.instrumentation.openai:OpenAIInstrumentor",
    "opentelemetry.instrumentation.httpx:HTTPXClientInstrumentor",
)
"""The framework's, the provider's and the HTTP instrumentation, all at once."""
exporter = CaptureExporter()


def install_clew():
    clew.configure("coexistence", span_exporters=[exporter])
    clew.instrument()


def install_other():
    if OTHER == "none":
        return
    if OTHER == "logfire":
        import logfire

        logfire.configure(send_to_logfire=False, console=False)
        getattr(logfire, f"instrument_{SDK.replace('-', '_')}")()
        return
    for place in LAYERS if OTHER == "layers" else (INSTRUMENTORS[OTHER][SDK],):
        module, _, name = place.partition(":")
        getattr(importlib.import_module(module), name)().instrument()


def ask_openai(server):
    import openai

    with openai.OpenAI(base_url=server.openai_base_url, api_key="key", max_retries=0) as client:
        arguments = {"model": "gpt-4o", "messages": [{"role": "user", "content": "SECRET"}]}
        if STREAM:
            options = {"include_usage": True}
            stream = client.chat.completions.create(
                **arguments, stream=True, stream_options=options
            )
            return sum(1 for _ in stream)
        return client.chat.completions.create(**arguments).choices[0].message.content


def ask_anthropic(server):
    import anthropic

    with anthropic.Anthropic(base_url=server.base_url, api_key="key", max_retries=0) as client:
        arguments = {
            "model": "claude-haiku-4-5",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "SECRET"}],
        }
        if STREAM:
            return sum(1 for _ in client.messages.create(**arguments, stream=True))
        return client.messages.create(**arguments).content[0].text


def ask_genai(server):
    from google import genai

    options = genai.types.HttpOptions(base_url=server.base_url)
    client = genai.Client(api_key="key", http_options=options)
    if STREAM:
        chunks = client.models.generate_content_stream(model="gemini-2.5-flash", contents="SECRET")
        return sum(1 for _ in chunks)
    return client.models.generate_content(model="gemini-2.5-flash", contents="SECRET").text


def ask_mistralai(server):
    from mistralai.client import Mistral

    with Mistral(api_key="key", server_url=server.base_url) as client:
        arguments = {
            "model": "mistral-small-latest",
            "messages": [{"role": "user", "content": "SECRET"}],
        }
        if STREAM:
            with client.chat.stream(**arguments) as stream:
                return sum(1 for _ in stream)
        return client.chat.complete(**arguments).choices[0].message.content


def ask_langchain(server):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="gpt-4o",
        base_url=server.openai_base_url,
        api_key="key",
        max_retries=0,
        stream_usage=True,
    )
    if STREAM:
        return sum(1 for _ in model.stream("SECRET"))
    return model.invoke("SECRET").content


ASK = {
    "langchain": ask_langchain,
    "openai": ask_openai,
    "anthropic": ask_anthropic,
    "google-genai": ask_genai,
    "mistralai": ask_mistralai,
}

steps = [install_clew, install_other]
for step in steps if FIRST == "clew" else steps[::-1]:
    step()
formats = {"formats": [MistralChatCompletions()]} if SDK == "mistralai" else {}
reply = Reply(text="SECRET", usage=Usage(input_tokens=100, output_tokens=20))
with ScriptedProvider([reply], **formats) as server, clew.run("triage"):
    answer = ASK[SDK](server)
clew.shutdown()
print(
    json.dumps(
        {
            "answer": answer,
            "otlp": exporter.otlp_json(),
            "leaks": b"SECRET" in exporter.otlp_bytes(),
            "sent": sorted(name.lower() for name, _ in server.requests[0].headers),
        }
    )
)
