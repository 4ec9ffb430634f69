import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runScript } from '../support/program.ts'
import { newFolder } from '../support/run-folder.ts'
import { Scenario } from './checker/scenario.ts'
import { runChaos } from './harness/chaos.ts'
import { commandFor, report } from './harness/report.ts'

describe('npm run chaos', () => {
  // The faults of seed 7: a pause, a kill, cuts, a kill of control, races and a drain. Clients also move to the nodes of their rooms.
  it('finds no violation in 14 s of faults', async () => {
    const options = {
      seed: 7,
      seconds: 14,
      nodes: 3,
      clients: 9,
      rooms: 3,
      lobby: 4,
      backends: 2,
      queue: 4,
      unfenced: false,
      direct: true,
      folder: join(await newFolder(), 'not there yet'),
      keep: false,
      say: () => {},
    }
    const result = await runChaos(options)
    // On a slow machine, less happens, but some of everything.
    const violations = result.violations.filter(
      ({ name, message }) => name !== 'too_little' || message.startsWith('0 '),
    )
    expect(violations, report(result, commandFor(options))).toEqual([])
  })
})

describe('npm run chaos -- --check', () => {
  it('reports the violation of a stored history and exits with 1', async () => {
    const scenario = new Scenario('journal')
    scenario.join('ann')
    scenario.loseSeat('ann')
    const file = join(await newFolder(), 'history.json')
    await writeFile(file, JSON.stringify(scenario.end()))
    const program = runScript(`${import.meta.dirname}/run.ts`, ['--check', file])
    expect(await program.ended).toBe(1)
    expect(program.output()).toContain('VIOLATION seat_lost')
  })
})
