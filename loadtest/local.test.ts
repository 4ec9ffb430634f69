import { beforeEach, describe, expect, it } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { ServiceWatch } from './local.ts'

let marked: boolean | undefined
let clock: FakeClock
let watch: ServiceWatch

beforeEach(() => {
  marked = true
  clock = new FakeClock()
  const mark = async (): Promise<boolean> => {
    if (marked !== undefined) marked = true
    return marked === true
  }
  watch = new ServiceWatch({ mark, marked: async () => marked }, clock)
})

/** What is told in so many looks, a second between each and the next. */
async function looks(count: number): Promise<string[]> {
  const told: string[] = []
  for (let look = 0; look < count; look++) {
    told.push(...(await watch.look()).map(({ text, grave }) => (grave ? `${text}!` : text)))
    clock.advance(1000)
  }
  return told
}

describe('what happens to a local service', () => {
  it('is nothing while all is well', async () => {
    expect(await looks(20)).toEqual([])
  })

  it('is told once for each process that ends', async () => {
    watch.ended('redis has ended by itself (SIGKILL)')
    watch.ended('node-1 has ended by itself (exit code 1)')
    expect(await looks(3)).toEqual([
      'redis has ended by itself (SIGKILL)!',
      'node-1 has ended by itself (exit code 1)!',
    ])
  })

  it('is told each time the store loses what was in it', async () => {
    expect(await looks(1)).toEqual([])
    marked = false
    expect(await looks(3)).toEqual(['the store has lost what was in it!'])
    marked = false
    expect(await looks(3)).toEqual(['the store has lost what was in it!'])
  })

  it('is told when the store is silent for long, and when it is back', async () => {
    marked = undefined
    expect(await looks(5)).toEqual([])
    expect(await looks(5)).toEqual(['the store has not answered for 5 s'])
    marked = true
    expect(await looks(5)).toEqual(['the store answers again, after 10.0 s'])
    marked = undefined
    expect(await looks(3)).toEqual([])
  })
})
