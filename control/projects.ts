import { type Clock, timestamp } from '../shared/clock.ts'
import { newId } from '../shared/ids.ts'
import type { Random } from '../shared/random.ts'
import type { Records, StoredRecord, Write } from '../shared/store/port.ts'
import { CreationOrder, type PageRequest, readPage } from './creation-order.ts'
import type { Keyring, StoredPair } from './keyring.ts'

/** A project as the store holds it. `created_at` is milliseconds since 1970; `pair` signs tokens that have no key of their own. */
export interface ProjectRecord {
  readonly id: string
  readonly name: string
  readonly created_at: number
  readonly pair: StoredPair
}

/** A project as callers see it. */
export interface ProjectView {
  readonly id: string
  readonly name: string
  readonly created_at: string
}

const INDEX = '{control}:projects'

/** The store key of a project's record. */
export const projectKey = (id: string): string => `{control}:project:${id}`

const decode = (record: StoredRecord): ProjectRecord => JSON.parse(new TextDecoder().decode(record.value))

/** `project` as callers see it. */
export const projectView = (project: ProjectRecord): ProjectView => ({
  id: project.id,
  name: project.name,
  created_at: timestamp(project.created_at),
})

/** The projects of a deployment. */
export class Projects {
  readonly #records: Records
  readonly #clock: Clock
  readonly #random: Random
  readonly #keyring: Keyring
  readonly #order: CreationOrder

  constructor(parts: { records: Records; clock: Clock; random: Random; keyring: Keyring }) {
    this.#records = parts.records
    this.#clock = parts.clock
    this.#random = parts.random
    this.#keyring = parts.keyring
    this.#order = new CreationOrder(parts.clock)
  }

  /** A new project with its built-in signing pair, and the writes that would store it. */
  async draft(name: string): Promise<{ project: ProjectRecord; writes: readonly Write[] }> {
    const project: ProjectRecord = {
      id: newId('prj', this.#random),
      name,
      created_at: this.#clock.now(),
      pair: await this.#keyring.createPair(),
    }
    const value = new TextEncoder().encode(JSON.stringify(project))
    const writes: Write[] = [
      { put: projectKey(project.id), value, ifVersion: 0 },
      { index: INDEX, add: this.#order.member(project.id) },
    ]
    return { project, writes }
  }

  async find(id: string): Promise<ProjectRecord | undefined> {
    const [record] = await this.#records.read([projectKey(id)])
    return record && decode(record)
  }

  /** One page of the projects, newest first. */
  async page(request: PageRequest): Promise<{ projects: ProjectRecord[]; next: string | undefined }> {
    const { page, next } = await readPage(this.#records, INDEX, projectKey, request)
    return { projects: page.map(decode), next }
  }
}
