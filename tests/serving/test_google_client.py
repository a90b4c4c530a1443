"""The official client of Google Cloud Vision talks to a server of ours."""

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import vision
from served import png

from brusle import defences
from brusle.serving import Server


def connected(server: Server) -> vision.ImageAnnotatorClient:
    return vision.ImageAnnotatorClient(
        transport="rest",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": server.url},
    )


def test_labels_are_those_of_the_victim(victim, images) -> None:
    listed = defences.make("confidences", victim)
    with Server(victim, "google-vision") as server:
        client = connected(server)
        for image in images:
            answer = client.label_detection(image=vision.Image(content=png(image)))
            scores = listed(image[None])[0]
            found = {label.description: label.score for label in answer.label_annotations}
            wanted = {
                name: score
                for name, score in zip(listed.classes, scores.tolist(), strict=True)
                if score > 0
            }
            assert found == pytest.approx(wanted, rel=1e-6) and not answer.error.message
            assert answer.label_annotations[0].description == listed.classes[int(scores.argmax())]
            assert all(label.mid.startswith("/m/") for label in answer.label_annotations)
        assert server.books.as_dict()["answered"] == len(images)


def test_the_number_of_labels_and_errors_of_images_arrive(victim, images) -> None:
    with Server(victim, "google-vision") as server:
        client = connected(server)
        few = client.label_detection(image=vision.Image(content=png(images[0])), max_results=1)
        assert len(few.label_annotations) == 1
        bad = client.label_detection(image=vision.Image(content=b"no image"))
        assert (bad.error.code, bad.error.message) == (3, "Bad image data.")
        books = server.books.as_dict()
        assert (books["received"], books["answered"], books["refused"]) == (2, 1, 1)


def test_trouble_is_raised_as_the_client_knows_it(victim, images) -> None:
    image = vision.Image(content=png(images[0]))
    with Server(victim, "google-vision", rate="1/h") as server:
        client = connected(server)
        client.label_detection(image=image)
        with pytest.raises(exceptions.TooManyRequests, match="too many images"):
            client.label_detection(image=image)
    with Server(victim, "google-vision", key="secret") as server:
        with pytest.raises(exceptions.Forbidden, match="the key is missing or wrong"):
            connected(server).label_detection(image=image)
        options = {"api_endpoint": server.url, "api_key": "secret"}
        client = vision.ImageAnnotatorClient(transport="rest", client_options=options)
        assert client.label_detection(image=image).label_annotations
