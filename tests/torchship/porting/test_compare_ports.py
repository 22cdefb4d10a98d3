"""The comparison with other people's ports is told as it was stored."""

from measurements.porting.compare_ports import PAGE, PORTS, drawn, load


def test_the_page_shows_the_stored_comparison() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert drawn(page, load()) == page, "run python -m measurements.porting.compare_ports"


def test_every_port_was_compared_and_left_nothing_to_port() -> None:
    comparisons = load()
    assert [each.name for each in comparisons] == [port.name for port in PORTS]
    assert {(each.left, each.without - each.gone, each.torch) for each in comparisons} == {
        (0, 0, "2.10")
    }
