/* The parameters of a topology-extractor: which labels of endpoints say where they are. */
#ifndef SLUICE_PICK_CONFIG_TOPOLOGY_H
#define SLUICE_PICK_CONFIG_TOPOLOGY_H

#include "pick/config/plugin_list.h"
#include "pick/pool/profile/topology.h"

extern const struct doc_member PICKER_TOPOLOGY[];

/* Gives each plugin of the list that compares places the labels of its extractor. */
void picker_resolve_topology(struct doc_reader *reader, const struct plugin_list *list);

#endif
