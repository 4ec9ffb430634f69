import { timestamp } from '../shared/clock.ts'
import { newId } from '../shared/ids.ts'
import { publishKeyNews } from '../shared/key-news.ts'
import { Problem } from '../shared/problem.ts'
import type { Write } from '../shared/store/port.ts'
import { REVOCATION_KEPT_MS } from '../shared/tokens.ts'
import type { StoredPair } from './keyring.ts'
import {
  CreationOrder,
  decode,
  encode,
  type PageRequest,
  type RecordsEnvironment,
  readPage,
  removeFromIndex,
} from './records.ts'

/** Stored form of a project. Times are milliseconds since 1970. `pair` signs tokens without a key. */
export interface ProjectRecord {
  readonly id: string
  readonly name: string
  readonly created_at: number
  /** Time at which it was disabled. Null: it is enabled. */
  readonly disabled_at: number | null
  /** True: its keys and players are being removed. It stays disabled. */
  readonly deleting?: true
  readonly pair: StoredPair
}

/** A project in answers of the API. */
interface ProjectView {
  readonly id: string
  readonly name: string
  readonly created_at: string
  readonly disabled_at: string | null
}

const INDEX = '{control}:projects'

/** Returns the store key of a project's record. */
export const projectKey = (id: string): string => `{control}:project:${id}`

/** Returns the store key of the note that a project was deleted. With it, nodes that missed the message close its sessions. */
const deletedKey = (id: string): string => `{control}:deleted-project:${id}`

/** Returns `project` for an answer of the API. */
export const projectView = (project: ProjectRecord): ProjectView => ({
  id: project.id,
  name: project.name,
  created_at: timestamp(project.created_at),
  disabled_at: project.disabled_at === null ? null : timestamp(project.disabled_at),
})

/** The projects of a deployment. */
export class Projects {
  readonly #env: RecordsEnvironment
  readonly #order: CreationOrder

  constructor(env: RecordsEnvironment) {
    this.#env = env
    this.#order = new CreationOrder(env.clock)
  }

  /** Makes a new project with its signing pair. The caller stores its writes. */
  async draft(name: string): Promise<{ project: ProjectRecord; writes: readonly Write[] }> {
    const project: ProjectRecord = {
      id: newId('prj', this.#env.random),
      name,
      created_at: this.#env.clock.now(),
      disabled_at: null,
      pair: await this.#env.keyring.createPair(),
    }
    const writes: Write[] = [
      { put: projectKey(project.id), value: encode(project), ifVersion: 0 },
      { index: INDEX, add: this.#order.member(project.id) },
    ]
    return { project, writes }
  }

  /** Returns true if a project with this id was deleted. The note is kept while its players may have tokens or sessions. */
  async wasDeleted(id: string): Promise<boolean> {
    const [note] = await this.#env.records.read([deletedKey(id)])
    return note !== undefined
  }

  async find(id: string): Promise<ProjectRecord | undefined> {
    const [record] = await this.#env.records.read([projectKey(id)])
    return record && decode<ProjectRecord>(record)
  }

  /** Returns a project. Rejects with a `Problem` (project_not_found). */
  async require(id: string): Promise<ProjectRecord> {
    return (await this.#require(id)).project
  }

  /** Same as `require`, but also rejects with a `Problem` (project_disabled). */
  async requireEnabled(id: string): Promise<ProjectRecord> {
    return enabled(id, await this.find(id))
  }

  rename(id: string, name: string): Promise<ProjectRecord> {
    return this.#change(id, (project) => ({ ...project, name }))
  }

  /**
   * Disables or enables a project, and notifies every node, also without a change. Rejects with a `Problem`: project_not_found, or conflict
   * for enabling a project that is being deleted.
   */
  async setDisabled(id: string, disabled: boolean): Promise<ProjectRecord> {
    const now = this.#env.clock.now()
    const changed = await this.#change(id, (project) => {
      if (project.deleting && !disabled)
        throw new Problem('conflict', `The project ${id} is being deleted: send the deletion again.`)
      return { ...project, disabled_at: disabled ? (project.disabled_at ?? now) : null }
    })
    await publishKeyNews(this.#env.bus, { project_id: id, disabled })
    return changed
  }

  /**
   * Marks a project as being deleted, if it has been disabled since `disabledAt` without a break. From then on it cannot be enabled. Rejects
   * with a `Problem`: project_not_found or conflict.
   */
  async startDeletion(id: string, disabledAt: number): Promise<void> {
    await this.#change(id, (project) => {
      if (project.disabled_at !== disabledAt)
        throw new Problem(
          'conflict',
          `The project ${id} was enabled while its rooms ended: disable it and delete it again.`,
        )
      return { ...project, deleting: true }
    })
  }

  /** Removes a project after `startDeletion`. Rejects with a `Problem`: project_not_found or conflict. */
  async remove(id: string): Promise<void> {
    const { version } = await this.#require(id)
    const note = { put: deletedKey(id), value: new Uint8Array(0), ttlMs: REVOCATION_KEPT_MS }
    if (!(await this.#env.records.write([{ remove: projectKey(id), ifVersion: version }, note])))
      throw new Problem('conflict', `The project ${id} was changed while it was deleted: delete it again.`)
    await removeFromIndex(this.#env.records, INDEX, (other) => other === id)
  }

  async #change(id: string, change: (project: ProjectRecord) => ProjectRecord): Promise<ProjectRecord> {
    for (;;) {
      const { project, version } = await this.#require(id)
      const changed = change(project)
      if (
        await this.#env.records.write([{ put: projectKey(id), value: encode(changed), ifVersion: version }])
      )
        return changed
    }
  }

  async #require(id: string): Promise<{ project: ProjectRecord; version: number }> {
    const [record] = await this.#env.records.read([projectKey(id)])
    if (!record) throw noProject(id)
    return { project: decode<ProjectRecord>(record), version: record.version }
  }

  /** Returns one page of the projects, newest first. */
  async page(request: PageRequest): Promise<{ projects: ProjectRecord[]; next: string | undefined }> {
    const { page, next } = await readPage<ProjectRecord>(this.#env.records, INDEX, projectKey, request)
    return { projects: page, next }
  }
}

/** Returns the project if it is enabled. Throws a `Problem`: project_not_found or project_disabled. */
export function enabled(id: string, project: ProjectRecord | undefined): ProjectRecord {
  if (!project) throw noProject(id)
  if (project.disabled_at !== null)
    throw new Problem('project_disabled', `The project ${id} is disabled: enable it first.`)
  return project
}

const noProject = (id: string): Problem =>
  new Problem('project_not_found', `There is no project ${id}.`, { isAbsence: true })
