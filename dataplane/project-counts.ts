/** Number of projects with their own series in a metric. */
const SHOWN_PROJECTS = 50

/** How many of something each project has at this node. */
export class ProjectCounts {
  readonly #counts = new Map<string, number>()

  of(projectId: string): number {
    return this.#counts.get(projectId) ?? 0
  }

  add(projectId: string, change: 1 | -1): void {
    const count = this.of(projectId) + change
    if (count === 0) this.#counts.delete(projectId)
    else this.#counts.set(projectId, count)
  }

  /** Series of a gauge: the projects with the largest counts, and the sum of the others as `other`. */
  get series(): (readonly [labels: { readonly project_id: string }, count: number])[] {
    const sorted = [...this.#counts].sort(([, a], [, b]) => b - a)
    const rest = sorted.slice(SHOWN_PROJECTS)
    if (rest.length > 0)
      sorted.splice(SHOWN_PROJECTS, rest.length, ['other', rest.reduce((sum, [, count]) => sum + count, 0)])
    return sorted.map(([projectId, count]) => [{ project_id: projectId }, count])
  }
}
