"""The regions of an answer, read as a client reads them, and what must hold of any of them."""

import dataclasses
import re

from tlm.v1 import generate_pb2

REASONING, TEXT, CALL = (generate_pb2.REGION_KIND_REASONING, generate_pb2.REGION_KIND_TEXT,
                         generate_pb2.REGION_KIND_TOOL_CALL)
ID = re.compile("[A-Za-z0-9]{9}")


@dataclasses.dataclass
class Region:
    kind: int
    begin: int  # in the text, of its first delta
    name: str = ""
    id: str = ""
    text: str = ""
    arguments: str = ""
    complete: object = None  # not finished yet

    @property
    def end(self):
        return self.begin + len(self.text)


class Regions:
    """Of one output: its events, checked one by one. AssertionError for events out of place."""

    def __init__(self):
        self.all = []
        self.text = ""  # deltas and markers
        self.merged = []  # events, neighbours of one kind joined: the same however they were sent
        self._open = None

    def add(self, event):
        kind = event.WhichOneof("event")
        assert kind is not None, "an event of no kind"
        getattr(self, "_" + kind)(getattr(event, kind))

    def _started(self, started):
        assert self._open is None, "a region starts within another"
        assert started.region_index == len(self.all), "regions are not numbered in order"
        assert (started.kind == CALL) == started.HasField("tool_call")
        region = Region(started.kind, len(self.text))
        if started.kind == CALL:
            call = started.tool_call
            assert call.index == len(self.calls), "calls are not numbered in order"
            assert ID.fullmatch(call.id), call.id
            assert all(call.id != other.id for other in self.calls), "two calls of one id"
            region.name, region.id = call.name, call.id
        self._open = region
        self.all.append(region)
        self.merged.append(["started", started.kind, region.name, region.id])

    def _delta(self, delta):
        self._check_open(delta)
        assert delta.text or delta.arguments_json, "an empty delta"
        assert delta.kind == CALL or not delta.arguments_json
        self.text += delta.text
        self._open.text += delta.text
        self._open.arguments += delta.arguments_json
        if self.merged[-1][0] != "delta":
            self.merged.append(["delta", "", ""])
        self.merged[-1][1] += delta.text
        self.merged[-1][2] += delta.arguments_json

    def _finished(self, finished):
        self._check_open(finished)
        self._open.complete = finished.complete
        self._open = None
        self.merged.append(["finished", finished.kind, finished.complete])

    def _marker(self, marker):
        assert self._open is None, f"the marker {marker!r} within a region"
        assert marker, "an empty marker"
        self.text += marker
        if not self.merged or self.merged[-1][0] != "marker":
            self.merged.append(["marker", ""])
        self.merged[-1][1] += marker

    def _check_open(self, event):
        assert self._open is not None, "no region is open"
        assert event.region_index == len(self.all) - 1, "of another region than the open one"
        assert event.kind == self._open.kind

    def end(self):
        assert self._open is None, "the output ends within a region"
        assert all(region.complete for region in self.all[:-1]), "one that is cut is not the last"

    @property
    def calls(self):
        return [region for region in self.all if region.kind == CALL]

    def of_kind(self, kind):
        return [region for region in self.all if region.kind == kind]


def regions_of(events, earlier=()):
    """Of the events of a stream of one output; earlier: the same of a stream that this one
    continues."""
    regions = Regions()
    for event in (*earlier, *events):
        for part in (event.tokens, event.finished):
            for each in part.regions:
                regions.add(each)
    regions.end()
    return regions
