"""Runs Triton's own tests and example clients against `sluice tritonserver`, and compares with what is expected to differ.

run.py SERVER-CHECKOUT CLIENT-CHECKOUT [--only SUITE] [--case CASE] [--work DIR] [--verbose]

SLUICE_BUILD names the folder of the build. Ports 8000 to 8002 of localhost have to be free."""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import expected
import models
import plan
import suites
from server import Server

HERE = pathlib.Path(__file__).parent
CASE_PATIENCE_S = 300


class Results:
    """Outcomes by suite, and the lists that are printed at the end."""

    def __init__(self, differences):
        self.differences = differences
        self.counts = collections.defaultdict(collections.Counter)
        self.unexpected = []
        self.too_slow = []  # cases that measure times on a machine that is busy with other programs
        self.not_run = collections.Counter()
        self.met = collections.Counter()

    def add(self, suite, case, outcome, text=''):
        reason = self.differences.get(suite, {}).get(case)
        if outcome == 'skipped':
            self.skip(suite, f'the test skips itself: {text}')
            return
        if reason is not None:
            self.met[suite, case] += 1
        late = outcome == 'failed' and re.search(expected.TIMED.get(suite, {}).get(case, '(?!)'), text)
        if late:
            self.counts[suite]['too slow'] += 1
            self.too_slow.append((suite, case, late.group()))
        elif outcome == 'passed' and reason is None:
            self.counts[suite]['passed'] += 1
        elif outcome == 'failed' and reason is not None:
            self.counts[suite]['differ'] += 1
        else:
            what = text if reason is None else f'passes, but is listed: {reason}'
            self.counts[suite]['unexpected'] += 1
            self.unexpected.append((suite, case, what))
        why = f' (expected: {reason})' if reason else f': {text.rstrip().splitlines()[-1]}' if text.strip() else ''
        print(f'  {outcome:7} {case}{why}', flush=True)

    def is_listed(self, suite, case):
        return case in self.differences.get(suite, {})

    def skip(self, suite, reason, n=1):
        self.counts[suite]['not run'] += n
        self.not_run[suite, reason] += n

    def forgotten(self, whole):
        """Differences that no case was compared with are out of date, if everything was run."""
        for suite, cases in self.differences.items():
            for case in cases:
                if whole and not self.met[suite, case]:
                    self.counts[suite]['unexpected'] += 1
                    self.unexpected.append((suite, case, 'listed as a difference, but no such case was run'))

    def print(self):
        for suite, case, text in self.unexpected:
            print(f'\nUNEXPECTED {suite} {case}\n{text.rstrip()}')
        columns = ('passed', 'differ', 'too slow', 'not run', 'unexpected')
        print(f'\n{"suite":28}' + ''.join(f'{column:>12}' for column in columns))
        for suite, count in self.counts.items():
            print(f'{suite:28}' + ''.join(f'{count[column]:12}' for column in columns))
        totals = sum(self.counts.values(), collections.Counter())
        print(f'{"total":28}' + ''.join(f'{totals[column]:12}' for column in columns))
        for suite, case, text in self.too_slow:
            print(f'\ntoo slow, at {os.getloadavg()[0]:.1f} runnable processes on {os.cpu_count()} CPUs: {suite} {case}: {text}')
        if self.not_run:
            print('\nnot run:')
            for (suite, reason), n in self.not_run.items():
                print(f'  {suite} ({n}): {reason}')


class Runner:
    def __init__(self, arguments, results):
        self.server, self.client = arguments.server.resolve(), arguments.client.resolve()
        self.work = arguments.work.resolve()
        self.data = self.work / 'data'
        self.only, self.case = arguments.only, arguments.case
        self.verbose = arguments.verbose
        self.program = str(pathlib.Path(os.environ['SLUICE_BUILD']).resolve() / 'sluice')
        self.results = results
        self.env = {**os.environ, 'PYTHONDONTWRITEBYTECODE': '1', 'CUDA_VISIBLE_DEVICES': '0'}

    def place(self, suite):
        return plan.Place(self.server, self.client, self.data, self.work / 'qa', suite)

    def cases_of(self, place, file, env, wanted, patience=CASE_PATIENCE_S):
        """The lines of the report of cases.py, without cases the list of them. A case that takes too long is a failure."""
        report = place.dir / 'report.jsonl'
        report.unlink(missing_ok=True)
        command = [sys.executable, str(HERE / 'cases.py'), str(place.dir / file), str(report), *wanted]
        lines = []
        try:
            done = subprocess.run(command, cwd=place.dir, env=env, timeout=patience * max(1, len(wanted)),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', check=False)
            output = done.stdout
        except subprocess.TimeoutExpired:
            output = f'no end after {patience} s for each case'
        if report.exists():
            lines = [json.loads(line) for line in report.read_text().splitlines()]
        ended = {line['case'] for line in lines if 'case' in line}
        for line in lines:
            if 'started' in line and line['started'] not in ended:
                lines = [*lines, {'case': line['started'], 'outcome': 'failed', 'text': output[-2000:]}]
        return lines, output

    def run(self, run, place):
        """One run: its cases against a server each, or one for all."""
        env = {**self.env, **run.env}
        lines, output = self.cases_of(place, run.file, env, [])
        cases = [line['listed'] for line in lines if 'listed' in line]
        label = f'{run.label} ' if run.label else ''
        if not cases:
            self.results.add(run.suite, f'{label}{run.file}', 'failed', lines[0]['text'] if lines else output[-2000:])
            return
        for case in [*(run.cases or []), *run.not_run]:
            if case not in cases:
                self.results.add(run.suite, f'{label}{case}', 'failed', f'{run.file} has no such case')
        cases = [case for case in cases if run.cases is None or case in run.cases or case in run.not_run]
        for case in cases:
            if case in run.not_run:
                self.results.skip(run.suite, run.not_run[case])
        cases = [case for case in cases if case not in run.not_run and (self.case is None or self.case in case)]
        print(f'{run.suite} {run.file} {run.label}', flush=True)
        for group in [[case] for case in cases] if run.restart else [cases] if cases else []:
            self.group(run, place, env, label, group)

    def group(self, run, place, env, label, cases):
        """Cases against one server. One that fails is tried again where the run says so."""
        outcomes = self.attempt(run, place, env, cases)
        for n in range(1, run.attempts):
            again = [case for case, (outcome, _) in outcomes.items()
                     if case in cases and outcome == 'failed' and not self.results.is_listed(run.suite, label + case)]
            for case in again:
                print(f'  attempt {n} of {run.attempts} failed: {label}{case}', flush=True)
            if again:
                outcomes |= self.attempt(run, place, env, again)
        for case, (outcome, text) in outcomes.items():
            self.results.add(run.suite, label + case, outcome, text)

    def attempt(self, run, place, env, cases):
        """Returns: the outcomes by case, and that of the server's end where it is not as it should be."""
        outcomes = {}
        run.models(place)
        log = place.dir / f'{run.label or "server"}-{cases[0]}.log'
        server = Server(self.program, run.arguments, place.dir, log, run.env)
        try:
            if not server.wait('live' if run.live else 'ready'):
                return {case: ('failed', f'the server did not start:\n{server.last_lines()}') for case in cases}
            if run.after_start is not None:
                run.after_start(place)
            left = list(cases)
            while left:  # again from the case behind one that did not end
                lines, output = self.cases_of(place, run.file, {**env, 'SERVER_PID': str(server.process.pid),
                                                                'SERVER_LOG': str(log)}, left)
                seen = {line['case']: (line['outcome'], line['text']) for line in lines if 'case' in line}
                seen = seen or {case: ('failed', output[-2000:]) for case in left}
                outcomes |= seen
                rest = [case for case in left if case not in seen]
                if len(rest) == len(left):  # the set-up of a class failed
                    break
                left = rest
        finally:
            code = server.stop()
            if code != 0:
                outcomes[f'{cases[0]} (end of the server)'] = 'failed', f'exit code {code}\n{server.last_lines()}'
        return outcomes

    def programs(self, run, place):
        commands = [command for command in run.commands if self.case is None or self.case in command]
        print(run.suite, flush=True)
        for group in [[command] for command in commands] if run.restart else [commands] if commands else []:
            run.models(place)
            log = place.dir / 'programs.log'
            server = Server(self.program, run.arguments, place.dir, log)
            try:
                started = server.wait('ready')
                for command in group:
                    if started:
                        self.results.add(run.suite, command, *self.program_outcome(place, command.split()))
                    else:
                        self.results.add(run.suite, command, 'failed', f'the server did not start:\n{server.last_lines()}')
            finally:
                server.stop()

    def program_outcome(self, place, words):
        try:
            done = subprocess.run([sys.executable, *words], cwd=place.dir, env=self.env, timeout=CASE_PATIENCE_S,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', check=False)
        except subprocess.TimeoutExpired:
            return 'failed', f'no end after {CASE_PATIENCE_S} s'
        return ('passed', '') if done.returncode == 0 else ('failed', done.stdout[-1500:])

    def wanted(self, suite):
        return self.only is None or (suite == self.only if self.only in {run.suite for run in suites.ALL}
                                     else self.only in suite)

    def all(self):
        models.make_all(self.server, self.data)
        places = {}
        for run in suites.ALL:
            if not self.wanted(run.suite):
                continue
            if isinstance(run, plan.NotRun):
                self.results.skip(run.suite, run.reason, run.cases)
                continue
            if run.suite not in places:
                places[run.suite] = self.place(run.suite)
            if isinstance(run, plan.Programs):
                self.programs(run, places[run.suite])
            else:
                self.run(run, places[run.suite])
        self.results.forgotten(whole=self.only is None and self.case is None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('server', type=pathlib.Path)
    parser.add_argument('client', type=pathlib.Path)
    parser.add_argument('--work', type=pathlib.Path, default=pathlib.Path(os.environ['SLUICE_BUILD']) / 'triton-qa')
    parser.add_argument('--only', help='only the suite of this name, or those that have it in theirs')
    parser.add_argument('--case', help='only cases with this in their name')
    parser.add_argument('--verbose', action='store_true')
    arguments = parser.parse_args()
    results = Results(expected.DIFFERENCES)
    Runner(arguments, results).all()
    results.print()
    return 1 if results.unexpected else 0


if __name__ == '__main__':
    sys.exit(main())
