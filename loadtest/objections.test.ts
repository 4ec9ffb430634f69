import { describe, expect, it } from 'vitest'
import { objections } from './objections.ts'
import { parseRun } from './options.ts'
import { rehearse } from './rehearsal.ts'
import { SCENARIOS } from './scenarios/index.ts'

async function objected(words: string, open_files: number | undefined = 20_000): Promise<string[]> {
  const request = parseRun(words.split(' '), SCENARIOS, {}, 2)
  if (request.kind !== 'run') throw new Error(JSON.stringify(request))
  const { scenario, values } = request.options
  return objections(request.options, await rehearse(scenario, values, ['node-1', 'node-2']), open_files)
}

describe('before a run begins, it is told', () => {
  it('nothing when it can come to what is asked for', async () => {
    expect(await objected('steady --max-rtt-p99 1s --max-connect-max 1s --max-errors 0')).toEqual([])
    expect(await objected('steady --local 1 --max-cpu 80%')).toEqual([])
    expect(await objected('steady --metrics http://127.0.0.1:9100 --max-cpu 80% --max-rss 1GB')).toEqual([])
    for (const scenario of ['resume-storm', 'node-kill --local 3', 'rolling-restart --local 3'])
      expect(await objected(`${scenario} --max-resume-p99 1s --max-pause-max 2s`)).toEqual([])
  })

  it('that there are more clients than this process can hold, and how many it can', async () => {
    expect(await objected('big-room --spectators 19790 --players 10')).toEqual([])
    expect(await objected('big-room --spectators 19791 --players 10')).toEqual([
      '19,801 clients are too many for this process, which may open 20,000 files (ulimit -n): 19,800 at most. More take several machines, each with its part of them.',
    ])
  })

  it('that it would go on for longer than any token is good for', async () => {
    expect(await objected('steady --seconds 25h')).toEqual([
      'It would take 25 h, and no token is good for more than 24 h: make it shorter.',
    ])
  })

  it('that a limit is about what the scenario never measures, or nobody tells', async () => {
    expect(await objected('steady --max-resume-p99 1s --max-pause-max 2s --max-cpu 80%')).toEqual([
      '--max-resume-p99: steady does nothing that would be measured by it; leave it out.',
      '--max-pause-max: steady does nothing that would be measured by it; leave it out.',
      '--max-cpu is about what the servers say of themselves: add --metrics URL,…',
    ])
  })

  it('that a key cannot be revoked without control', async () => {
    expect(await objected('revoke --project prj_1 --token t')).toEqual([
      'revoke revokes a key, so it needs the control API: leave out --project and --token.',
    ])
  })
})
