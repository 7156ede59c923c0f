"""Bodies that no JSON schema describes: a bundle is a good one of this service's own ($KILN_BUNDLE, made by run.sh), one that was changed or cut, or noise."""
import os, pathlib
import schemathesis
from hypothesis import strategies as st

good = pathlib.Path(os.environ["KILN_BUNDLE"]).read_bytes()

def changed(at, byte): return good[:at] + bytes([byte]) + good[at + 1:]

places = st.integers(0, len(good) - 1)
schemathesis.openapi.media_type("application/vnd.kiln.export",
                                st.one_of(st.just(good), st.builds(changed, places, st.integers(0, 255)), places.map(lambda n: good[:n]), st.binary(max_size=4096)))
