"""What goes in: named sets, readers for a user's own images, records, and the public facts about them."""

from privset.data.loading import facts_of as facts_of
from privset.data.loading import is_built_in as is_built_in
from privset.data.loading import load as load
from privset.data.named.catalogue import NamedSet as NamedSet
from privset.data.partitions import of_classes as of_classes
from privset.data.partitions import of_labels as of_labels
from privset.data.partitions import shared as shared
from privset.data.partitions import split as split
from privset.data.records import Dataset as Dataset
from privset.data.records import Records as Records
from privset.facts import PublicFacts as PublicFacts
