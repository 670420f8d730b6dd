"""The public client library of the poll API against `worker serve --dev`: `check_poll.py URL`. The library checks every
reply against its own models. Ends with a line of what held."""

import base64
import io
import os
import sys
import threading
import time
import urllib.request
import json

URL = sys.argv[1]
os.environ["AI_HORDE_URL"] = f"{URL}/api/"
os.environ["HORDE_SDK_DISABLE_CUSTOM_SINKS"] = "1"

from loguru import logger

logger.remove()

import PIL.Image
from horde_sdk.ai_horde_api import apimodels as api
from horde_sdk.ai_horde_api.ai_horde_clients import AIHordeAPIManualClient, AIHordeAPISimpleClient
from horde_sdk.generic_api.apimodels import RequestErrorResponse

IMAGE_AGENT = "AI Horde Worker reGen:99.1.0:https://example.org"
TEXT_AGENT = "KoboldCppEmbedWorker:2:https://example.org"


def send(path, key, **body):
    headers = {"content-type": "application/json", "apikey": key}
    request = urllib.request.Request(f"{URL}/api/v2/{path}", json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))


def user(name):
    return send(
        "dev/test-user", "", username=name, oauth_id=name, moderator=False, trusted=True, kudos=10000)


CLIENT, OWNER, OTHER = user("client"), user("owner"), user("other")
KEY, OWNERS_KEY = CLIENT["api_key"], OWNER["api_key"]


def call(request):
    """The reply, of the library's own type."""
    wanted = request.get_default_success_response_type()
    reply = AIHordeAPIManualClient().submit_request(request, wanted)
    assert not isinstance(reply, RequestErrorResponse), reply
    return reply


def refused(request):
    reply = AIHordeAPIManualClient().submit_request(request, request.get_default_success_response_type())
    assert isinstance(reply, RequestErrorResponse), reply
    return reply


def pop_until(request, found):
    for _ in range(200):
        popped = call(request)
        if found(popped):
            return popped
        time.sleep(0.05)
    raise AssertionError("no job came")


def beside(work):
    """Runs it beside the client; what goes wrong in it goes wrong here."""
    failures = []

    def run():
        try:
            work()
        except BaseException as error:  # told to whoever waits
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join():
        thread.join()
        if failures:
            raise failures[0]

    return join


def text_pop(name="texts", **options):
    return api.TextGenerateJobPopRequest(
        apikey=OWNERS_KEY, name=name, models=["writer"], bridge_agent=TEXT_AGENT, max_length=512,
        max_context_length=4096, **options,
    )


def image_pop(name="images", **options):
    return api.ImageGenerateJobPopRequest(
        apikey=OWNERS_KEY, name=name, models=["stable_diffusion"], bridge_agent=IMAGE_AGENT, max_pixels=1 << 20,
        nsfw=True, allow_painting=True, **options,
    )


def picture(colour="red", size=64):
    raw = io.BytesIO()
    PIL.Image.new("RGB", (size, size), colour).save(raw, "webp")
    return raw.getvalue()


def a_text_is_written_by_a_worker_of_the_library():
    def work():
        popped = pop_until(text_pop(), lambda popped: popped.id_)
        assert popped.payload.prompt == "Once upon" and popped.model == "writer"
        paid = call(api.TextGenerationJobSubmitRequest(
            apikey=OWNERS_KEY, id=popped.id_, generation="a time", state="ok", seed=1))
        assert paid.reward > 0

    done = beside(work)
    asked = api.TextGenerateAsyncRequest(
        apikey=KEY, prompt="Once upon", models=["writer"],
        params=api.ModelGenerationInputKobold(max_length=64, max_context_length=1024, temperature=0.7))
    status, _ = AIHordeAPISimpleClient().text_generate_request(asked, timeout=60)
    done()
    assert [made.text for made in status.generations] == ["a time"]
    assert status.generations[0].worker_name == "texts" and status.done


def an_image_is_drawn_uploaded_and_fetched_by_its_link():
    def work():
        popped = pop_until(image_pop(), lambda popped: popped.ids)
        assert popped.payload.prompt == "a red square" and popped.payload.width == 64 and popped.payload.seed
        assert len(popped.r2_uploads) == 1
        upload = urllib.request.Request(
            popped.r2_uploads[0], picture(), {"content-type": "image/webp"}, method="PUT")
        assert urllib.request.urlopen(upload).status == 200
        paid = call(api.ImageGenerationJobSubmitRequest(
            apikey=OWNERS_KEY, id=popped.ids[0], generation="R2", state="ok", seed=7))
        assert paid.reward > 0

    done = beside(work)
    asked = api.ImageGenerateAsyncRequest(
        apikey=KEY, prompt="a red square", models=["stable_diffusion"],
        params=api.ImageGenerationInputPayload(width=64, height=64, steps=4, n=1))
    client = AIHordeAPISimpleClient()
    status, _ = client.image_generate_request(asked, timeout=60)
    done()
    image = client.download_image_from_generation(status.generations[0])
    assert image.size == (64, 64) and image.convert("RGB").getpixel((9, 9))[0] > 200
    assert status.generations[0].seed == "7" and status.generations[0].worker_name == "images"


def an_image_may_come_and_go_as_base64():
    def work():
        popped = pop_until(image_pop(), lambda popped: popped.ids)
        call(api.ImageGenerationJobSubmitRequest(
            apikey=OWNERS_KEY, id=popped.ids[0], generation=base64.b64encode(picture("blue")).decode(), state="ok",
            seed=8))

    done = beside(work)
    asked = api.ImageGenerateAsyncRequest(
        apikey=KEY, prompt="a blue square", models=["stable_diffusion"], r2=False,
        params=api.ImageGenerationInputPayload(width=64, height=64, steps=4, n=1))
    client = AIHordeAPISimpleClient()
    status, _ = client.image_generate_request(asked, timeout=60)
    done()
    image = client.download_image_from_generation(status.generations[0])
    assert image.convert("RGB").getpixel((9, 9))[2] > 200


def a_dry_run_costs_nothing_and_says_the_price():
    images = api.ImageGenerateAsyncRequest(
        apikey=KEY, prompt="a", models=["stable_diffusion"], dry_run=True,
        params=api.ImageGenerationInputPayload(width=512, height=512, steps=30, n=1))
    assert AIHordeAPISimpleClient().image_generate_request_dry_run(images).kudos > 0
    texts = api.TextGenerateAsyncRequest(apikey=KEY, prompt="a", models=["writer"], dry_run=True)
    assert AIHordeAPISimpleClient().text_generate_request_dry_run(texts).kudos > 0


def an_image_is_looked_at():
    def work():
        popped = pop_until(
            api.AlchemyPopRequest(
                apikey=OWNERS_KEY, name="eyes", forms=["caption"], bridge_agent=IMAGE_AGENT, amount=1,
                priority_usernames=[], max_tiles=64, threads=1),
            lambda popped: popped.forms)
        form = popped.forms[0]
        seen = urllib.request.urlopen(form.source_image).read()
        assert PIL.Image.open(io.BytesIO(seen)).size == (64, 64)
        # The library sends texts only here, and wants objects back.
        paid = send("interrogate/submit", OWNERS_KEY, id=str(form.id_.root), result={"caption": "a red square"}, state="ok")
        assert paid["reward"] > 0

    done = beside(work)
    asked = api.AlchemyAsyncRequest(
        apikey=KEY, forms=[api.AlchemyAsyncRequestFormItem(name="caption")],
        source_image=base64.b64encode(picture()).decode())
    status, _ = AIHordeAPISimpleClient().alchemy_request(asked, timeout=60)
    done()
    assert status.all_caption_results[0].caption == "a red square"


def users_find_themselves_and_give_kudos():
    found = call(api.FindUserRequest(apikey=KEY))
    assert found.username == CLIENT["alias"] and found.kudos > 0
    given = call(api.KudosTransferRequest(apikey=KEY, username=OTHER["alias"], amount=5))
    assert given.transferred == 5
    assert refused(api.KudosTransferRequest(apikey=KEY, username="nobody#999999", amount=5)).message
    assert call(api.ListUsersDetailsRequest(page=1, sort="kudos")).root
    assert call(api.SingleUserDetailsRequest(user_id=str(OTHER["user_id"]))).username == OTHER["alias"]


def the_service_tells_about_itself():
    client = AIHordeAPISimpleClient()
    assert client.heartbeat_request().message == "OK"
    names = {worker.name for worker in client.workers_all_details().root}
    assert {"texts", "images"} <= names, names
    details = client.worker_details_by_name("images")
    assert details.name == "images" and details.requests_fulfilled >= 1
    assert client.worker_details(details.id_).name == "images"
    assert any(model.name == "stable_diffusion" for model in client.image_status_models_all().root)
    assert client.image_status_models_single("stable_diffusion").root
    assert client.image_stats_totals().total.images >= 0
    assert client.text_stats_totals().total["requests"] >= 0
    client.image_stats_models()
    client.text_stats_models()
    assert isinstance(client.get_news().root, list)
    performance = call(api.HordePerformanceRequest())
    assert performance.worker_count >= 1 and performance.text_worker_count >= 1


def an_owner_puts_a_worker_into_maintenance_and_out_of_it():
    client = AIHordeAPISimpleClient()
    worker = client.worker_details_by_name("images").id_
    changed = call(api.ModifyWorkerRequest(
        apikey=OWNERS_KEY, worker_id=worker, maintenance=True, maintenance_msg="dinner", info="mine"))
    assert changed.maintenance and changed.info == "mine"
    assert "maintenance mode" in refused(image_pop()).message.lower()
    assert not call(api.ModifyWorkerRequest(apikey=OWNERS_KEY, worker_id=worker, maintenance=False)).maintenance
    call(image_pop())


def a_request_is_cancelled():
    asked = api.ImageGenerateAsyncRequest(
        apikey=KEY, prompt="never", models=["nobody_serves_this"],
        params=api.ImageGenerationInputPayload(width=64, height=64, steps=4, n=2))
    accepted = call(asked)
    check = call(api.ImageGenerateCheckRequest(id=accepted.id_))
    assert check.waiting == 2 and not check.is_possible and not check.done
    call(api.DeleteImageGenerateRequest(id=accepted.id_))
    assert call(api.ImageGenerateCheckRequest(id=accepted.id_)).done


def main():
    checks = [
        a_text_is_written_by_a_worker_of_the_library,
        an_image_is_drawn_uploaded_and_fetched_by_its_link,
        an_image_may_come_and_go_as_base64,
        a_dry_run_costs_nothing_and_says_the_price,
        an_image_is_looked_at,
        users_find_themselves_and_give_kudos,
        the_service_tells_about_itself,
        an_owner_puts_a_worker_into_maintenance_and_out_of_it,
        a_request_is_cancelled,
    ]
    wanted = sys.argv[2:]
    failed = 0
    for check in checks:
        name = check.__name__.replace("_", " ")
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            check()
            print(f"ok      {name}")
        except BaseException as error:  # every check is tried
            failed += 1
            print(f"FAILED  {name}: {type(error).__name__}: {str(error)[:600]}")
    print("all held" if not failed else f"{failed} failed")
    sys.exit(failed > 0)


main()
