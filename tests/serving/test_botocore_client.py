"""AWS's own client talks to a server of ours."""

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session
from served import png

from brusle import defences
from brusle.serving import Server


def connected(server: Server, key: str = "AKIDEXAMPLE"):
    return Session().create_client(
        "rekognition",
        region_name="eu-west-1",
        endpoint_url=server.url,
        aws_access_key_id=key,
        aws_secret_access_key="of nobody",
        config=Config(retries={"total_max_attempts": 1}),
    )


def code_of(client, **asked) -> str:
    with pytest.raises(ClientError) as raised:
        client.detect_labels(**asked)
    return str(raised.value.response["Error"]["Code"])


def test_labels_are_those_of_the_victim(victim, images) -> None:
    listed = defences.make("confidences", victim)
    scores = listed(images[:1])[0]
    with Server(victim, "rekognition") as server:
        client = connected(server)
        answer = client.detect_labels(Image={"Bytes": png(images[0])}, MinConfidence=50)
    found = {label["Name"]: label["Confidence"] / 100 for label in answer["Labels"]}
    wanted = {
        name: score
        for name, score in zip(listed.classes, scores.tolist(), strict=True)
        if score > 0
    }
    assert found == pytest.approx(wanted)
    assert answer["LabelModelVersion"]


def test_errors_have_the_names_that_the_client_knows(victim, images) -> None:
    image = {"Bytes": png(images[0])}
    with Server(victim, "rekognition", rate="1/h") as server:
        client = connected(server)
        assert code_of(client, Image={"Bytes": b"no image"}) == "InvalidImageFormatException"
        large = {"Bytes": bytes(6_000_000)}
        assert code_of(client, Image=large) == "ImageTooLargeException"
        assert client.detect_labels(Image=image, MaxLabels=1)["Labels"]
        assert code_of(client, Image=image) == "ProvisionedThroughputExceededException"
    with Server(victim, "rekognition", key="AKIDMINE") as server:
        assert code_of(connected(server), Image=image) == "UnrecognizedClientException"
        assert connected(server, "AKIDMINE").detect_labels(Image=image)["Labels"]
