"""The workflows of GitHub Actions run there alone; this is what can be checked of them here. And tools/release-notes,
which decides whether a tag becomes a release."""
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from lib import server

# The first version of each action for Node 24: GitHub's runners have had no older one since September 2026.
NODE_24 = {"actions/checkout": 5, "actions/upload-artifact": 6, "actions/download-artifact": 7,
           "actions/attest-build-provenance": 3}
FILES = sorted(glob.glob(os.path.join(server.ROOT, ".github", "workflows", "*.yml")))


def read(*path):
    with open(os.path.join(server.ROOT, *path), encoding="utf-8") as file:
        return file.read()


def workflows():
    """Name → workflow. YAML 1.1 reads the key `on` as true."""
    found = {os.path.basename(path): yaml.safe_load(read(path)) for path in FILES}
    assert {"docs.yml", "release.yml", "test.yml"} <= set(found)
    return {name: {"on" if key is True else key: value for key, value in flow.items()} for name, flow in found.items()}


def jobs():
    """(workflow and job, workflow, job) of each job."""
    return [(f"{name}: {title}", flow, job) for name, flow in workflows().items() for title, job in flow["jobs"].items()]


def steps(action=""):
    """(workflow and job, job, step) of each step that uses this action, or has a script."""
    for where, _, job in jobs():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), where
            if step.get("uses", "").split("@")[0] == action:
                yield where, job, step


def test_workflow_jobs_have_a_time_limit():
    for where, _, job in jobs():
        assert 0 < job["timeout-minutes"] <= 120, where


def test_workflow_actions_run_on_node_24():
    """By the version, or by the commit with the version as a comment."""
    for path in FILES:
        for line in re.findall(r"uses: (.*)", read(path)):
            name, version = re.fullmatch(r"([\w/-]+)@(?:v|[0-9a-f]{40} # v)(\d+)[\d.]*", line).groups()
            assert int(version) >= NODE_24[name], (path, line)


def test_workflow_rights_to_write_are_for_pushes_alone():
    for where, flow, job in jobs():
        assert flow["permissions"] == {"contents": "read"}, where
        if "write" in job.get("permissions", {}).values() and set(flow["on"]) != {"push"}:
            assert job["if"] == "github.event_name == 'push'", where


def test_workflow_scripts_are_valid(tmp_path):
    """In a container the shell is sh. No expression is pasted into a script: it would run what a branch is called."""
    for where, job, step in steps():
        assert "${{" not in step["run"], where
        script = tmp_path / "script"
        script.write_text(step["run"])
        done = subprocess.run(["shellcheck", "-s", "sh" if "container" in job else "bash", script], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, (where, done.stdout)


def test_workflow_scripts_name_targets_and_tools():
    targets = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.M))
    for where, _, step in steps():
        for words in re.findall(r"(?:^|&& )make ([a-z0-9 -]+)", step["run"], re.M):
            assert set(words.split()) <= targets, (where, words)
        for tool in re.findall(r"(?:^| )((?:tools|\.ci)/[\w-]+)", step["run"], re.M):
            assert os.access(os.path.join(server.ROOT, tool), os.X_OK), (where, tool)


def test_workflow_artifacts_are_uploaded_before_they_are_downloaded():
    uploaded = {}
    for where, _, step in steps("actions/upload-artifact"):
        uploaded.setdefault(where.split(":")[0], {})[step["with"]["name"]] = where.split(": ")[1]
        assert step["with"]["if-no-files-found"] == "error", where
    for where, job, step in steps("actions/download-artifact"):
        pattern, needs = step["with"].get("name") or step["with"]["pattern"], job["needs"]
        makers = {maker for name, maker in uploaded[where.split(":")[0]].items() if fnmatch.fnmatch(name, pattern)}
        assert makers and makers <= set([needs] if isinstance(needs, str) else needs), where


def test_release_tag_starts_the_workflows():
    tag = "v" + read("VERSION").strip()
    for name in ("release.yml", "docs.yml"):
        assert any(fnmatch.fnmatch(tag, pattern) for pattern in workflows()[name]["on"]["push"]["tags"]), name


# ---- the site --------------------------------------------------------------------------------------


def git(folder, *args):
    done = subprocess.run(["git", "-C", folder, *args], check=True, text=True, stdout=subprocess.PIPE,
                          env=os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull})
    return done.stdout


@pytest.fixture
def origin(tmp_path):
    """A repository with what the script of docs.yml calls, as GitHub has it: bare."""
    work, bare = tmp_path / "work", tmp_path / "origin.git"
    (work / "tools").mkdir(parents=True)
    shutil.copy(os.path.join(server.ROOT, "tools", "site-versions"), work / "tools")
    git(work, "init", "-q", "-b", "main")
    git(work, "add", "-A")
    git(work, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "all")
    git(tmp_path, "clone", "-q", "--bare", work, bare)
    return bare


def publish(origin, folder, ref, text):
    """Runs the script in a new clone of one commit, as actions/checkout makes it, with a site of one page."""
    script = next(step["run"] for where, _, step in steps() if where == "docs.yml: publish")
    git(origin, "clone", "-q", "--depth", "1", f"file://{origin}", folder)
    (folder / "site").mkdir()
    (folder / "site" / "index.html").write_text(text)
    subprocess.run(["bash", "-e", "-c", script], check=True, cwd=folder, env=os.environ | {
        "GITHUB_REF": ref, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull})
    return {path: git(origin, "show", f"gh-pages:{path}")
            for path in git(origin, "ls-tree", "-r", "--name-only", "gh-pages").split()}


def test_site_is_published_beside_other_versions(origin, tmp_path):
    """The first time without the branch, then from main and from tags, also without a change."""
    pages = publish(origin, tmp_path / "1", "refs/heads/main", "first")
    assert set(pages) == {".nojekyll", "index.html", "versions.json", "dev/index.html"}
    publish(origin, tmp_path / "2", "refs/tags/v0.1.0", "release")
    for number in "34":
        pages = publish(origin, tmp_path / number, "refs/heads/main", "second")
        assert (pages["dev/index.html"], pages["0.1.0/index.html"]) == ("second", "release")
        assert 'url=0.1.0/"' in pages["index.html"]
    assert len(git(origin, "log", "--format=%h", "gh-pages").split()) == 3


# ---- the text of a release -----------------------------------------------------------------------

ENTRIES = "### Added\n\n- A thing.\n"


def notes(folder, tag, changelog):
    """Runs tools/release-notes in a folder with version 0.2.0 and this changelog."""
    (folder / "tools").mkdir()
    shutil.copy(os.path.join(server.ROOT, "tools", "release-notes"), folder / "tools")
    (folder / "VERSION").write_text("0.2.0\n")
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n" + changelog)
    return subprocess.run([sys.executable, folder / "tools" / "release-notes", tag], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_release_notes_are_the_section_of_the_version(tmp_path):
    done = notes(tmp_path, "v0.2.0",
                 f"## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n{ENTRIES}\n## [0.1.0]\n\n### Fixed\n\n- Another.\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, ENTRIES, "")


@pytest.mark.parametrize("tag, changelog, why", [
    ("v0.2.1", f"## [0.2.0]\n\n{ENTRIES}", "the tag v0.2.1 is not v0.2.0"),
    ("0.2.0", f"## [0.2.0]\n\n{ENTRIES}", "the tag 0.2.0 is not v0.2.0"),
    ("v0.2.0", f"## [Unreleased]\n\n## [0.1.0]\n\n{ENTRIES}", "no text for [0.2.0]"),
    ("v0.2.0", f"## [0.2.0]\n\n\n## [0.1.0]\n\n{ENTRIES}", "no text for [0.2.0]"),
    ("v0.2.0", f"## [Unreleased]\n\n{ENTRIES}\n## [0.2.0]\n\n{ENTRIES}", "entries under [Unreleased]"),
], ids=["other-tag", "tag-without-v", "no-section", "empty-section", "unreleased-entries"])
def test_release_notes_refuse(tmp_path, tag, changelog, why):
    done = notes(tmp_path, tag, changelog)
    assert (done.returncode, done.stdout) == (1, "") and why in done.stderr, done.stderr
