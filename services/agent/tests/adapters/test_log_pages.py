from cotenant_agent.adapters.log_pages import LogFiles
from cotenant_agent.runtime import RuntimeSettings


def logs(path, **files):
    directory = path / "pods" / "u" / "main"
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("_", ".")).write_text(text)
    return LogFiles(RuntimeSettings(path))


def read(source, after=None, tail_lines=None, limit_bytes=1_000):
    return source.read("u", "main", after=after, tail_lines=tail_lines, limit_bytes=limit_bytes)


def test_no_log_is_no_page(tmp_path):
    assert read(LogFiles(RuntimeSettings(tmp_path))) is None


def test_pages_follow_each_other_over_a_rotation(tmp_path):
    source = logs(tmp_path, log="one\n")
    first = read(source)
    directory = tmp_path / "pods" / "u" / "main"
    (directory / "log").write_text("one\ntwo\n")
    (directory / "log").rename(directory / "log.1")
    (directory / "log").write_text("three\n")
    second = read(source, after=first.cursor)
    assert (first.text, second.text) == ("one\n", "two\nthree\n")
    assert read(source, after=second.cursor).text == ""


def test_a_page_is_bounded_and_the_next_one_goes_on(tmp_path):
    source = logs(tmp_path, log_1="abc", log="def")
    page, text = read(source, limit_bytes=2), ""
    while page.text:
        text += page.text
        page = read(source, after=page.cursor, limit_bytes=2)
    assert text == "abcdef"


def test_the_tail_reaches_into_older_files(tmp_path):
    source = logs(tmp_path, log_1="1\n2\n3\n", log="4\n")
    assert read(source, tail_lines=2).text == "3\n4\n"
    assert read(source, tail_lines=99).text == "1\n2\n3\n4\n"
    assert read(source, tail_lines=0).text == ""


def test_a_cursor_into_a_file_that_is_gone_continues_with_the_oldest(tmp_path):
    assert read(logs(tmp_path, log="new\n"), after="1:5").text == "new\n"


def test_a_letter_is_never_cut_in_two(tmp_path):
    settings = RuntimeSettings(tmp_path)
    directory = settings.container_dir("u", "main")
    directory.mkdir(parents=True)
    text = "aé€😀" * 20
    (directory / "log").write_bytes(text.encode())
    pages, after = [], None
    for _ in range(100):
        page = LogFiles(settings).read("u", "main", after=after, tail_lines=None, limit_bytes=7)
        pages.append(page.text)
        after = page.cursor
    assert "".join(pages) == text


def test_a_page_of_no_size_or_a_cursor_that_is_none_gives_the_beginning(tmp_path):
    settings = RuntimeSettings(tmp_path)
    directory = settings.container_dir("u", "main")
    directory.mkdir(parents=True)
    log = directory / "log"
    log.write_text("abcdefgh")
    for after in ("x", f"{log.stat().st_ino}:-5", f"{log.stat().st_ino}:x"):
        page = LogFiles(settings).read("u", "main", after=after, tail_lines=None, limit_bytes=-3)
        assert page.text == "abcd"
