import { describe, expect, it } from 'vitest'
import { hasPlace } from './shares.ts'

const PLACES = { max: 100, share: 50 }

/** A node with the sessions of some projects. */
class Node {
  readonly counts: Record<string, number> = {}

  get taken(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0)
  }

  /** Lets up to `most` sessions of a project in. Returns their number. */
  enter(project: string, most: number, places = PLACES): number {
    for (let entered = 0; entered < most; entered++) {
      const count = this.counts[project] ?? 0
      if (!hasPlace(places, this.taken, count)) return entered
      this.counts[project] = count + 1
    }
    return most
  }

  leave(project: string): void {
    this.counts[project]! -= 1
  }
}

describe('A project at a node', () => {
  it('can use the whole node while no other project comes, and no more', () => {
    expect(new Node().enter('a', 1000)).toBe(100)
  })

  it('gets spare places at a node that another project fills', () => {
    const node = new Node()
    node.enter('a', 1000)
    expect(node.enter('b', 1000)).toBe(10)
  })

  it('gets each place that becomes free until it has half, and the first project gets none of them', () => {
    const node = new Node()
    node.enter('a', 1000)
    node.enter('b', 10)
    for (let left = 0; left < 40; left++) {
      node.leave('a')
      expect(node.enter('a', 1)).toBe(0)
      expect(node.enter('b', 1)).toBe(1)
    }
    expect(node.counts).toEqual({ a: 60, b: 50 })
    node.leave('a')
    expect([node.enter('b', 1), node.enter('a', 1)]).toEqual([0, 0])
  })

  it('gets spare places also beside two others that have half each', () => {
    const node = new Node()
    node.enter('a', 50)
    node.enter('b', 50)
    expect(['a', 'b', 'c'].map((project) => node.enter(project, 5))).toEqual([0, 0, 5])
  })

  it('gets no spare place with a share of 0, and may have more than half of them with a share of 100', () => {
    const none = new Node()
    none.enter('a', 100)
    expect(none.enter('b', 1, { max: 100, share: 0 })).toBe(0)
    const all = new Node()
    all.enter('a', 40)
    all.enter('b', 60)
    expect(all.enter('b', 1, { max: 100, share: 100 })).toBe(1)
  })

  it('has no bound without a maximum', () => {
    expect(new Node().enter('a', 1000, { max: 0, share: 50 })).toBe(1000)
  })
})
