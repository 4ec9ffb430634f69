import type { NodeInfo } from '../../shared/node-registry.ts'

/** Information of a node without its name and its state in the cluster. */
export type NodeFigures = Omit<NodeInfo, 'node_id' | 'draining' | 'cordoned'>

/** This node, as the other nodes see it. */
export class Self {
  /** True when this node hands its rooms over and takes no rooms or sessions. */
  draining = false
  /** True when this node keeps its rooms and sessions, and takes no more. */
  cordoned = false
  readonly #nodeId: string
  readonly #figures: () => NodeFigures

  constructor(nodeId: string, figures: () => NodeFigures) {
    this.#nodeId = nodeId
    this.#figures = figures
  }

  /** Information for the other nodes, written with each renewal of the lease. */
  info(): NodeInfo {
    const { draining, cordoned } = this
    return { ...this.#figures(), node_id: this.#nodeId, draining, ...(cordoned && { cordoned }) }
  }
}
